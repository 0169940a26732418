"""The selection algorithms. Each registers itself when it is imported; every file in this folder is."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
