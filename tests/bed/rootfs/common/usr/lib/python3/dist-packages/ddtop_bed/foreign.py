"""SIMULATED strangers: `squat PORT` answers /v1/models as any server would; `hog GPU MIB` holds GPU memory."""
import json, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

from . import gpu, ledger


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        data = json.dumps({"object": "list", "data": [{"id": "somebody-elses-model", "object": "model", "owned_by": "vllm"}]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


if sys.argv[1] == "squat":
    server = HTTPServer(("0.0.0.0", int(sys.argv[2])), Handler)
    ledger.stamp("fault", kind="squatter", port=int(sys.argv[2]))
    server.serve_forever()
elif sys.argv[1] == "hog":
    gpu.claim([int(sys.argv[2])], int(sys.argv[3]), "idle", name="python3")
    ledger.stamp("fault", kind="hog", gpu=int(sys.argv[2]), mib=int(sys.argv[3]))
    while True:
        time.sleep(60)
