"""Ask `foretrace serve` for predictions now, and send the labels when they are known.

    foretrace serve RUN --like examples/sensors.csv.gz --target reject
    python examples/07_service_client.py

A request without an answer may be sent again: under the same id, it is learned once.
"""

import uuid

import httpx

with httpx.Client(base_url="http://127.0.0.1:8080", timeout=30) as service:
    weights = {uuid.uuid4().hex: weight for weight in (503.2, 498.7, 541.9)}
    for id, weight in weights.items():
        body = {"id": id, "row": {"weight": weight, "temperature": 21.0}}
        found = service.post("/predict", json=body).raise_for_status().json()
        print(id, found["y"], found["probability"])  # None before the first label
    for id, weight in weights.items():  # hours later, in any order
        body = {"id": id, "y": "yes" if weight > 540 else "no"}
        service.post("/label", json=body).raise_for_status()
