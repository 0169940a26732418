"""The logs of boxes, as they came from a real Kubeflow Pipelines 2.17.0 on Argo 3.7.14."""

import pytest

from lipt.adapters.cluster.printed import news, printed

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


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ("", "a\nb\n", "a\nb\n"),
        ("a\n", "a\nb\n", "b\n"),
        ("a\nb\n", "a\nb\n", ""),
        ("".join(f"{line}\n" for line in range(300)), "".join(f"{line}\n" for line in range(50, 302)), "300\n301\n"),
        ("a\nb\n", "c\nd\n", "c\nd\n"),
    ],
    ids=["first", "more", "no more", "the node has dropped its beginning", "all that was shown was dropped"],
)
def test_what_a_log_says_after_what_was_shown(before: str, now: str, new: str) -> None:
    assert news(before, now) == new
