"""The live commands of `spotweave`. `commands` loads nothing but typer; the rest comes when one runs."""
