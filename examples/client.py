"""Submits a job to a service, waits for its end and fetches what it left: python client.py wordcount.yaml.

The service is that of SPOTWEAVE_SERVER, or http://127.0.0.1:8421; the access token that of SPOTWEAVE_TOKEN.
"""

import sys

import spotweave

with spotweave.Client() as client:
    job = client.submit(sys.argv[1])
    print(f"{job['job_id']} is submitted")
    job = client.wait(job["job_id"])
    print(f"it has {job['state']} for {job['cost']['usd']:.4f} USD")
    for part in client.logs(job["job_id"], tail=5):
        print(part.text, end="")
    if client.files(job["job_id"]):
        print(f"its files are in {client.download(job['job_id'])}")
