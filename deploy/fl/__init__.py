"""What Flower apps use to survive interruptions: a main loop of ServerApps, and a ClientApp with a memory.

# server_app.py                               # client_app.py
from flwr.serverapp import ServerApp           from spotweave.deploy.fl.client import checkpointing_client_app
from spotweave.deploy.fl.synchronous import train             app = checkpointing_client_app()
app = ServerApp()
                                               @app.train()
@app.main()                                    def train(message, context): ...
def main(grid, context):
    train(grid, context, initial)
"""
