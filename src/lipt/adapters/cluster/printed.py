"""The log of a box without the lines of the programs that Argo and Kubeflow Pipelines wrap around it."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Argo's executor; KFP's launcher (its errors stay, they say why no box started); KFP's executor. KFP's two also print
# the inputs and outputs of the box as JSON, over dozens of lines.
_ENGINE = re.compile(
    r'time="\S+" level=(debug|info) .*\bargo=true'
    r"|[IW]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\.go:\d+\] "
    r"|\[KFP Executor [\d\- :,]+ (DEBUG|INFO)\]:"
)


class Printed:
    """What a box printed itself, from the log of its container, piece by piece."""

    def __init__(self) -> None:
        self._ours, self._document = True, False

    def __call__(self, lines: Iterable[str]) -> str:
        """Of the next lines of the log, those of the box."""
        kept = []
        for line in lines:
            text = line.rstrip("\n")
            if self._document:  # of the engine; its last line is the only one that is not indented
                self._document = text != "}"
            elif _ENGINE.match(text):
                self._ours, self._document = False, text.endswith("{")
            elif not self._ours and text == "{":
                self._document = True
            else:
                self._ours = True
                kept.append(line)
        return "".join(kept)


def printed(log: str) -> str:
    """What a box printed itself, from the whole log of its container."""
    return Printed()(log.splitlines(keepends=True))


class GrowingLog:
    """The log of a pod that is read again and again. Only what is new is fetched, apart from the last second."""

    def __init__(self) -> None:
        self._last, self._count = "", 0
        """The time of the last line, and how many lines have it."""
        self._printed, self._remarks = Printed(), set[str]()

    @property
    def query(self) -> dict[str, str]:
        """Options of the next request."""
        since = {"sinceTime": _FRACTION.sub("", self._last)} if self._last else {}
        return {"timestamps": "true"} | since

    def news(self, answer: str, *, over: bool) -> str:
        """What the box has printed since the answer before.

        Args:
            over: the pod has ended, so its last line is complete, too.
        """
        *lines, rest = answer.split("\n")  # not at other ends of lines, after which there is no time
        if rest and over:
            lines.append(rest)
        # Within an answer the times may go back a little: stdout and stderr are stamped apart.
        before, known, fresh = self._last, self._count, []
        for line in lines:
            time, _, text = line.partition(" ")
            if not time[:1].isdigit():  # the node's own remark, without a time; it may come with each answer
                if line not in self._remarks:
                    self._remarks.add(line)
                    fresh.append(f"{line}\n")
                continue
            if time < before:
                continue
            if time == before and known:
                known -= 1
                continue
            if time >= self._last:
                self._count = self._count + 1 if time == self._last else 1
                self._last = time
            fresh.append(f"{text}\n")
        return self._printed(fresh)


#: Of a second: the API takes whole seconds.
_FRACTION = re.compile(r"\.\d+")
