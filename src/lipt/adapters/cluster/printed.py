"""The log of a box without the lines of the programs that Argo and Kubeflow Pipelines wrap around it."""

from __future__ import annotations

import re

# Argo's executor; KFP's launcher (its errors stay, they say why no box started); KFP's executor. KFP's two also print
# the inputs and outputs of the box as JSON, over dozens of lines.
_ENGINE = re.compile(
    r'time="\S+" level=(debug|info) .*\bargo=true'
    r"|[IW]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\.go:\d+\] "
    r"|\[KFP Executor [\d\- :,]+ (DEBUG|INFO)\]:"
)


#: Characters of the end of a log by which it is found again in a later one.
_END = 500


def news(before: str, now: str) -> str:
    """What a log says after what it said `before`. Its node may have dropped the beginning since."""
    if now.startswith(before):
        return now.removeprefix(before)
    _, found, rest = now.rpartition(before[-_END:])
    return rest if found else now


def printed(log: str) -> str:
    """What a box printed itself, from the log of its container."""
    kept, ours, document = [], True, False
    for line in log.splitlines(keepends=True):
        text = line.rstrip("\n")
        if document:  # of the engine; its last line is the only one that is not indented
            document = text != "}"
        elif _ENGINE.match(text):
            ours, document = False, text.endswith("{")
        elif not ours and text == "{":
            document = True
        else:
            ours = True
            kept.append(line)
    return "".join(kept)
