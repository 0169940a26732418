"""The logs of boxes, as they came from a real Kubeflow Pipelines 2.17.0 on Argo 3.7.14."""

from lipt.adapters.cluster.printed import GrowingLog, printed

_LOG = """\
time="2026-11-23T13:02:57.809Z" level=info msg="capturing logs" argo=true
I1123 13:02:57.838765      14 main.go:67] Setting log level to: '1'
[KFP Executor 2026-11-23 13:02:57,950 INFO]: Looking for component `select` in --component_module_path `/tmp/e.py`
[KFP Executor 2026-11-23 13:02:57,951 INFO]: Got executor_input:
{
    "inputs": {
        "parameterValues": {}
    }
}
score                 2.1 s  models 1  images 1,294  classes 10
{
}
[KFP Executor 2026-11-23 13:03:30,166 INFO]: Wrote executor output file to /s3/lipt/output_metadata.json.
I1123 13:03:31.084353      14 launcher_v2.go:1230] ExecutorOutput: {
  "parameterValues": {
    "Output": "s3://lipt/first/specs/1ac082afe354cdf7.json"
  }
}
W1123 13:05:18.928299      14 launcher_v2.go:827] Local filepath "/s3/lipt/metrics" does not exist
lipt: the store is full
  -> free space, then run again
F1123 13:05:19.000000      14 main.go:58] failed to execute component: exit status 1
time="2026-11-23T13:05:19.441Z" level=info msg="sub-process exited" argo=true error="<nil>"
"""


def test_the_lines_of_the_engine_are_left_out_but_its_errors_stay() -> None:
    assert printed(_LOG).splitlines() == [
        "score                 2.1 s  models 1  images 1,294  classes 10",
        "{",
        "}",
        "lipt: the store is full",
        "  -> free space, then run again",
        "F1123 13:05:19.000000      14 main.go:58] failed to execute component: exit status 1",
    ]


def test_what_was_shown_stays_while_the_log_grows() -> None:
    whole = printed(_LOG)
    lines = _LOG.splitlines(keepends=True)
    assert all(whole.startswith(printed("".join(lines[:count]))) for count in range(len(lines)))


class Kubelet:
    """The log of a container, and what Kubernetes answers who asks for it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.sent = 0

    def says(self, second: float, text: str) -> None:
        self.lines.append((f"2026-11-27T05:43:{second:012.9f}+01:00", text))

    def answer(self, query: dict[str, str]) -> str:
        assert query["timestamps"] == "true"
        since = query.get("sinceTime", "2026")
        assert "." not in since  # its fraction would be refused or ignored
        there = [f"{time} {text}" for time, text in self.lines if time >= since.replace("+01:00", ".000000000+01:00")]
        self.sent += len(there)
        return "".join(there)


def test_a_growing_log_is_told_once_and_not_sent_again() -> None:
    node, log, told = Kubelet(), GrowingLog(), ""
    for line, text in enumerate(_LOG.splitlines(keepends=True)):
        node.says(0.5 + line // 2, text)  # two lines of the same time
        told += log.news(node.answer(log.query), over=False)
    assert told == printed(_LOG)
    assert log.news(node.answer(log.query), over=True) == ""
    assert node.sent < 4 * len(node.lines)


def test_a_line_is_told_when_it_is_complete() -> None:
    node, log = Kubelet(), GrowingLog()
    node.says(1, "epoch 1\r\x85epoch 2")
    assert log.news(node.answer(log.query), over=False) == ""
    node.lines[0] = (node.lines[0][0], "epoch 1\r\x85epoch 2, done\n")
    assert log.news(node.answer(log.query), over=False) == "epoch 1\r\x85epoch 2, done\n"
    node.says(1.25, "no end")
    assert log.news(node.answer(log.query), over=False) == ""
    assert log.news(node.answer(log.query), over=True) == "no end\n"


def test_lines_whose_times_go_back_within_an_answer_are_told() -> None:
    """Two goroutines stamp stdout and stderr."""
    node, log = Kubelet(), GrowingLog()
    node.says(1.5, "first\n")
    node.says(1.4, "the error\n")
    node.says(1.6, "last\n")
    assert log.news(node.answer(log.query), over=False) == "first\nthe error\nlast\n"
    node.says(1.6, "more\n")
    assert log.news(node.answer(log.query), over=False) == "more\n"


def test_a_log_whose_beginning_its_node_has_dropped() -> None:
    node, log = Kubelet(), GrowingLog()
    node.says(1, "first\n")
    node.says(1, "second\n")
    assert log.news(node.answer(log.query), over=False) == "first\nsecond\n"
    node.lines.clear()
    node.says(2, "second\n")
    assert log.news(node.answer(log.query), over=False) == "second\n"


def test_what_the_node_says_without_a_time_is_told_once_and_loses_nothing() -> None:
    log, remark = GrowingLog(), "failed to create fsnotify watcher: too many open files"
    first = "2026-01-02T03:04:05.1Z one\n"
    assert log.news(f"{first}{remark}\n", over=False) == f"one\n{remark}\n"
    assert log.query["sinceTime"] == "2026-01-02T03:04:05Z"
    assert log.news(f"{first}2026-01-02T03:04:06.1Z two\n{remark}\n", over=True) == "two\n"
