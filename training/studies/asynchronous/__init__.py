"""The study of docs/results/liu2022-async.md: asynchronous learning of Liu 2022, chapters 6 and 7."""
