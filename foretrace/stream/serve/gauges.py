"""The numbers that a process of a group exposes to Prometheus."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily

Seen = Mapping[int, Mapping[str, float]]
"""The numbers of each partition, by name."""


class Gauges:
    """The numbers of partitions as gauges, labelled with the partition.

    Args:
        seen: function that returns the present numbers.
    """

    def __init__(self, seen: Callable[[], Seen]):
        self._seen = seen

    def collect(self) -> Any:
        """Yield a gauge for each number, with the values of all partitions."""
        seen = self._seen()
        for name in next(iter(seen.values()), {}):
            text = name.replace("_", " ")
            family = GaugeMetricFamily(f"foretrace_{name}", text, labels=["partition"])
            for number, values in seen.items():
                family.add_metric([str(number)], values[name])
            yield family


def expose(seen: Callable[[], Seen], address: str, stack: contextlib.ExitStack) -> str:
    """Serve numbers in another thread until the end of a stack; return the URL.

    Args:
        seen: function that returns the present numbers.
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
    registry.register(Gauges(seen))
    server, thread = prometheus.start_http_server(int(port), host, registry)
    stack.callback(thread.join)
    stack.callback(server.shutdown)
    return f"http://{host}:{server.server_port}/metrics"
