"""Pages of results in `docs/`, from the committed records alone: verdict first, one table a question."""
