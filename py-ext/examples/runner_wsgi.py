"""Works off a queue when it is asked to: ``ROWCLAIM_DSN=… RUNNER_TOKEN=… python runner_wsgi.py 8080``, and from a
crontab ``curl -X POST -H "Authorization: Bearer …" http://127.0.0.1:8080/``. Any WSGI server runs ``application``."""

import os
import sys
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

import rowclaim


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


engine = rowclaim.connect(os.environ["ROWCLAIM_DSN"])
handlers = {"greetings": lambda job: print("hello,", job.payload, flush=True)}
application = engine.runner(handlers, token=os.environ["RUNNER_TOKEN"], name="greetings", max_seconds=25).wsgi

if __name__ == "__main__":
    make_server("127.0.0.1", int(sys.argv[1]), application, Server).serve_forever()
