"""The numbers of a service, or of a process of a group, for Prometheus."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily

Seen = Mapping[tuple[int, ...], Mapping[str, float]]
"""Numbers by their names, for each value of the labels."""


class Gauges:
    """Numbers as gauges.

    Args:
        seen: function that returns the present numbers.
        labels: names of the labels.
    """

    def __init__(self, seen: Callable[[], Seen], *labels: str):
        self._seen, self._labels = seen, labels

    def collect(self) -> Any:
        """Yield each number with all values of the labels."""
        seen = self._seen()
        for name in next(iter(seen.values()), {}):
            text = name.replace("_", " ")
            family = GaugeMetricFamily(f"foretrace_{name}", text, labels=self._labels)
            for labels, values in seen.items():
                family.add_metric([*map(str, labels)], values[name])
            yield family


def expose(seen: Callable[[], Seen], address: str, stack: contextlib.ExitStack) -> str:
    """Serve numbers in another thread until the end of a stack; return the URL.

    Args:
        seen: function that returns the present numbers of each partition.
        address: a port of this machine, or HOST:PORT.
        stack: resources that are closed at the end.

    Raises:
        ValueError: the address has no valid port.
        OSError: the port cannot be used.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"metrics_port={address!r}, expected a port, or HOST:PORT")
    host, registry = host or "127.0.0.1", prometheus.CollectorRegistry()
    registry.register(Gauges(seen, "partition"))
    server, thread = prometheus.start_http_server(int(port), host, registry)
    stack.callback(thread.join)
    stack.callback(server.shutdown)
    return f"http://{host}:{server.server_port}/metrics"
