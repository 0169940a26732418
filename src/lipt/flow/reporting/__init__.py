"""From the artifacts of finished runs to the report: one file per section, `report` joins them."""
