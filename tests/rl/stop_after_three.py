"""A request to stop that comes while a block of a run is computed."""


class StopAfterThree:
    """Instead of `foretrace._runs.session.Stop`: after three blocks the run is asked to stop."""

    def __enter__(self):
        self.left = 3
        return self

    def __exit__(self, *_):
        pass

    @property
    def asked(self):
        self.left -= 1
        return self.left < 0
