"""flower-superexec, as SuperLinks and SuperNodes of ours start it: no token is seen in the list of processes.

Flower gives each app its token as an argument, which everybody on the machine may read. Here it is read from
a file that has no name. SuperLinks and SuperNodes look for `flower-superexec` in PATH: `put_first` puts a
program of that name before the original.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from spotweave.deploy.runners.flower.guarded import TOKEN_FILE_VARIABLE, TOKEN_HEADER


def put_first(folder: Path) -> None:
    """Have whatever this process starts find ours; a program in this folder calls it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    program = folder / "flower-superexec"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {__name__} "$@"\n')
    program.chmod(0o700)
    os.environ["PATH"] = f"{folder}:{os.environ.get('PATH', os.defpath)}"


def launch(argv: list[str], token: str) -> None:
    """Start an app's process with the token of its run, which `argv` is without."""
    file = os.memfd_create("token", 0)
    try:
        os.write(file, token.encode())
        subprocess.Popen([*argv, "--token-file", f"/proc/self/fd/{file}"], pass_fds=(file,))
    finally:
        os.close(file)


def main() -> None:
    """Run flower-superexec until it is told to stop."""
    # Here: SuperLinks read names of this module.
    from flwr.supercore.cli import flower_superexec
    from flwr.supercore.constant import TASK_TYPE_TO_APPIO_API_ADDRESS_ARG, TASK_TYPE_TO_COMMAND
    from flwr.supercore.protobuf.client import ProtobufRequestContext
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
    from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult

    def launch_app(self: SubprocessExecutor, spec: ExecutionSpec) -> LaunchResult:
        argv = [
            TASK_TYPE_TO_COMMAND[spec.task_type],
            TASK_TYPE_TO_APPIO_API_ADDRESS_ARG[spec.task_type],
            spec.runtime_api_address,
        ]
        if spec.insecure:
            argv.append("--insecure")
        elif spec.root_certificates_path is not None:
            argv += ["--root-certificates", spec.root_certificates_path]
        if spec.parent_pid is not None:
            argv += ["--parent-pid", str(spec.parent_pid)]
        launch(argv, spec.token)
        return LaunchResult.accepted()

    # There is no setting for either.
    SubprocessExecutor.launch = launch_app  # type: ignore[method-assign]
    if TOKEN_FILE_VARIABLE in os.environ:
        token, send = Path(os.environ[TOKEN_FILE_VARIABLE]).read_text(), RuntimeHttpClient._send

        def send_with_token(
            self: RuntimeHttpClient, context: ProtobufRequestContext, *, stream: bool = False
        ) -> object:
            context.request.headers[TOKEN_HEADER] = token
            return send(self, context, stream=stream)

        RuntimeHttpClient._send = send_with_token  # type: ignore[method-assign,assignment]
    flower_superexec()


if __name__ == "__main__":
    main()
