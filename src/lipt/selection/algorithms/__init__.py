"""The selection algorithms. Every file in this folder is imported, and registers its algorithms."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
