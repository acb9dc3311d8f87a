"""Pages of results in `docs/`, from committed records: verdict first, a table a question."""
