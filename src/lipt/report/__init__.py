"""The report: what a run found (`document`), what it means (`verdict`), and how it is shown (`render`, `text`)."""
