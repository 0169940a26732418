"""The report: what a run found (`document`), what it means (`verdict`), how it looks (`html_page`, `terminal`)."""
