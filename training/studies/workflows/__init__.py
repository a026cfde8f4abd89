"""docs/results/liu2022-workflows.md: Liu 2022, chapter 3, and the planners on random workflows."""
