"""Time and bytes of openmined-psi for one query of 64 inputs against a table; runs in an environment of its own.

Prints one JSON object: seconds and bytes. Arguments: size of the table, inputs.
"""

import json
import sys
import time

import private_set_intersection.python as psi


def main() -> None:
    size, asked = int(sys.argv[1]), int(sys.argv[2])
    rows = [f"row {number}" for number in range(size)]
    inputs = [f"row {number * 2}" for number in range(asked // 2)] + [f"none {n}" for n in range(asked - asked // 2)]
    result = {"version": psi.__version__}
    for name, kind in (("gcs", psi.DataStructure.GCS), ("raw", psi.DataStructure.RAW)):
        server, client = psi.server.CreateWithNewKey(True), psi.client.CreateWithNewKey(True)
        began = time.perf_counter()
        setup = server.CreateSetupMessage(1e-9, asked, rows, kind)
        made = time.perf_counter()
        request = client.CreateRequest(inputs)
        requested = time.perf_counter()
        response = server.ProcessRequest(request)
        answered = time.perf_counter()
        found = client.GetIntersection(setup, response)
        opened = time.perf_counter()
        assert len(found) == asked // 2
        result[name] = {
            "setup_seconds": made - began,
            "client_seconds": requested - made + opened - answered,
            "server_seconds": answered - requested,
            "table_bytes": len(setup.SerializeToString()),
            "request_bytes": len(request.SerializeToString()),
            "response_bytes": len(response.SerializeToString()),
        }
    print(json.dumps(result))


main()
