"""Random workflows of the nine scientific families of WfCommons, with the figures of recorded instances.

Structure, run times and sizes of each are those of one instance (Coleman et al. 2022) that its function
names: a file of github.com/wfcommons/pegasus-instances or makeflow-instances, and its commit. Means and
standard deviations are over the recorded steps of a kind, or over some of them where there are many. Times
are those of one core; sizes are decimal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import combinations

import numpy as np

from spotweave.envs.simulation.workflows.model import (
    Cluster,
    File,
    Link,
    Platform,
    Profile,
    Stage,
    Step,
    Workflow,
    WorkflowError,
)

MB = 1e-3
"""In GB."""
KB = 1e-6
LEAST_SHARE = 0.05
"""No step takes less than this share of its kind's mean."""


class _Draft:
    """A workflow in the making; each step writes one file, which carries its name.

    The file has the size of what one of its readers reads, as the first step of many writes a part for each.
    """

    def __init__(self, random: np.random.Generator, at: tuple[str, ...]) -> None:
        self._random = random
        self._at = at
        self.files: list[File] = []
        self.steps: list[Step] = []

    def given(self, name: str, gb: float) -> str:
        """A file that lies there from the start."""
        self.files.append(File(name, gb, self._at))
        return name

    def add(self, kind: str, mean_s: float, deviation_s: float, gb: float, reads: Iterable[str]) -> str:
        """A step on one executor; gives the name of the file that it writes."""
        name = f"{kind}-{len(self.steps)}"
        seconds = max(LEAST_SHARE * mean_s, float(self._random.normal(mean_s, deviation_s)))
        self.files.append(File(name, gb))
        self.steps.append(Step(name, Profile((Stage(1, seconds),), executors=1), tuple(reads), (name,)))
        return name

    def count(self, mean: int) -> int:
        """A number around a mean, at least 2."""
        return max(2, int(self._random.integers(round(0.8 * mean), round(1.2 * mean) + 1)))


def _montage(draft: _Draft, steps: int) -> None:
    """montage/chameleon-cloud/montage-chameleon-2mass-005d-001.json, 813a2a7d: three bands of four images."""
    n = max(2, round((steps + 2) / 15))
    mosaics = []
    for band in range(3):
        images = range(draft.count(n))
        projected = [
            draft.add("mProject", 17.4, 0.8, 8.30 * MB, [draft.given(f"2mass-{band}-{k}", 1.51 * MB)])
            for k in images
        ]
        # Images overlap with those near by.
        near = [(a, b) for a, b in combinations(images, 2) if b - a <= 3]
        fits = [draft.add("mDiffFit", 0.25, 0.21, 0.26 * KB, [projected[a], projected[b]]) for a, b in near]
        table = draft.add("mConcatFit", 0.195, 0.0, 1.46 * KB, fits)
        model = draft.add("mBgModel", 0.73, 0.0, 0.28 * KB, [table])
        flat = [draft.add("mBackground", 0.42, 0.15, 8.30 * MB, [model, image]) for image in projected]
        index = draft.add("mImgtbl", 0.169, 0.0, 2.64 * KB, flat)
        mosaics.append(draft.add("mAdd", 0.183, 0.001, 262 * KB, [index, *flat]))
        draft.add("mViewer", 0.096, 0.003, 26 * KB, [mosaics[-1]])
    draft.add("mViewer", 0.191, 0.0, 74 * KB, mosaics)


def _epigenomics(draft: _Draft, steps: int) -> None:
    """epigenomics/chameleon-cloud/epigenomics-chameleon-hep-1seq-100k-001.json, 813a2a7d; here two lanes."""
    lanes = 2
    each = max(2, (steps - 3 - 2 * lanes) // (4 * lanes))
    genome = draft.given("chr21.BS.bfa", 46.9 * MB)
    merged = []
    for lane in range(lanes):
        read = draft.add("fastqSplit", 1.345, 0.0, 13.2 * MB, [draft.given(f"lane-{lane}", 109.4 * MB)])
        mapped = []
        for _ in range(draft.count(each)):
            clean = draft.add("filterContams", 0.72, 0.17, 12.8 * MB, [read])
            sanger = draft.add("sol2sanger", 0.43, 0.15, 9.8 * MB, [clean])
            binary = draft.add("fast2bfq", 0.615, 0.106, 2.3 * MB, [sanger])
            mapped.append(draft.add("map", 53.4, 7.8, 1.14 * MB, [binary, genome]))
        merged.append(draft.add("mapMerge", 5.637, 0.0, 8.97 * MB, mapped))
    last = draft.add("mapMerge", 3.202, 0.0, 8.97 * MB, merged)
    index = draft.add("chr21", 2.774, 0.0, 8.97 * MB, [last])
    draft.add("pileup", 30.52, 0.0, 6.92 * MB, [index, draft.given("chr21.BSnull.bfa", 46.9 * MB)])


def _genome(draft: _Draft, steps: int) -> None:
    """1000genome/chameleon-cloud/1000genome-chameleon-2ch-250k-001.json, 813a2a7d."""
    chromosomes = max(1, round(steps / 41))
    for c in range(chromosomes):
        variants, sites = draft.given(f"vcf-{c}", 2.54), draft.given(f"annotation-{c}", 0.268)
        parts = [draft.add("individuals", 55.0, 1.7, 28 * KB, [variants]) for _ in range(draft.count(25))]
        merged = draft.add("individuals_merge", 94.3, 3.0, 25 * KB, parts)
        sifted = draft.add("sifting", 2.4, 0.2, 356 * KB, [sites])
        for _ in range(7):
            draft.add("mutation_overlap", 5.0, 2.8, 145 * KB, [merged, sifted])
            draft.add("frequency", 98.0, 6.6, 271 * KB, [merged, sifted])


def _cycles(draft: _Draft, steps: int) -> None:
    """cycles/chameleon-cloud/cycles-chameleon-1l-1c-9p-001.json, 44392a32."""
    weather = draft.given("weather", 1.19 * MB)
    seasons, parsed = [], []
    for _ in range(draft.count(max(2, (steps - 3) // 4))):
        baseline = draft.add("baseline_cycles", 12.12, 2.83, 38 * KB, [weather])
        seasons.append(draft.add("cycles", 7.53, 8.52, 6.26 * KB, [weather, baseline]))
        richer = draft.add("fertilizer_increase_cycles", 8.35, 9.61, 6.26 * KB, [weather, baseline])
        parsed.append(
            draft.add("fertilizer_increase_output_parser", 0.052, 0.003, 8.35 * KB, [seasons[-1], richer])
        )
    summary = draft.add("output_summary", 0.061, 0.0, 75 * KB, seasons)
    draft.add("fertilizer_increase_output_summary", 0.056, 0.0, 123 * KB, parsed)
    draft.add("plots", 126.589, 0.0, 3.4 * MB, [summary])


def _soykb(draft: _Draft, steps: int) -> None:
    """soykb/chameleon-cloud/soykb-chameleon-10fastq-10ch-001.json, 6d12b3cd; here five chromosomes."""
    chromosomes = 5
    genome, software = draft.given("Gmax_275_v2.0", 2.70), draft.given("software", 109 * MB)
    called: list[list[str]] = [[] for _ in range(chromosomes)]
    for sample in range(draft.count(max(2, (steps - 5 - chromosomes) // (6 + chromosomes)))):
        pair = draft.given(f"USB-{sample}", 48 * KB)
        aligned = draft.add("alignment_to_reference", 5.99, 3.80, 113 * KB, [genome, software, pair])
        ordered = draft.add("sort_sam", 9.31, 7.44, 164 * KB, [software, aligned])
        single = draft.add("dedup", 9.36, 6.92, 165 * KB, [software, ordered])
        grouped = draft.add("add_replace", 12.01, 11.76, 165 * KB, [software, single])
        targets = draft.add("realign_target_creator", 94.54, 0.63, 0.04 * KB, [genome, software, grouped])
        realigned = draft.add("indel_realign", 55.14, 59.13, 167 * KB, [genome, software, grouped, targets])
        for one in called:
            one.append(draft.add("haplotype_caller", 133.0, 59.8, 88 * KB, [genome, software, realigned]))
    typed = [
        draft.add("genotype_gvcfs", 132.3, 5.4, 88 * KB, [genome, software, *samples]) for samples in called
    ]
    everything = draft.add("combine_variants", 5.643, 0.0, 70 * KB, [genome, software, *typed])
    for kind, select_s, filter_s in (("snp", 140.851, 67.509), ("indel", 132.132, 69.113)):
        some = draft.add(f"select_variants_{kind}", select_s, 0.0, 70 * KB, [genome, software, everything])
        draft.add(f"filtering_{kind}", filter_s, 0.0, 100 * KB, [genome, software, some])


def _blast(draft: _Draft, steps: int) -> None:
    """blast/chameleon-cloud/blast-chameleon-small-001.json, 056c883f.

    Makeflow recorded KB where the schema says bytes (the program has 7,688), but for the database bytes.
    """
    part = draft.add("split_fasta", 0.054, 0.0, 6 * KB, [draft.given("fasta", 203 * KB)])
    database = draft.given("nt", 5.11)
    found = [
        draft.add("blastall", 9.50, 0.26, 18 * KB, [part, database])
        for _ in range(draft.count(max(2, steps - 3)))
    ]
    draft.add("cat_blast", 0.035, 0.0, 433 * KB, found)
    draft.add("cat", 0.0096, 0.0, 0.0, found)


def _bwa(draft: _Draft, steps: int) -> None:
    """bwa/chameleon-cloud/bwa-chameleon-small-001.json, 056c883f; sizes as in `_blast`."""
    reference = draft.given("ref.fastq", 200.4 * MB)
    part = draft.add("fastq_reduce", 0.052, 0.0, 25 * KB, [draft.given("query.fastq", 2.44 * MB)])
    index = draft.add("bwa_index", 80.65, 0.0, 175.6 * MB, [reference])
    aligned = [
        draft.add("bwa", 3.40, 1.94, 518 * KB, [reference, part, index])
        for _ in range(draft.count(max(2, steps - 4)))
    ]
    draft.add("cat_bwa", 0.613, 0.0, 6.57 * MB, aligned)
    draft.add("cat", 0.016, 0.0, 14 * KB, aligned)


def _srasearch(draft: _Draft, steps: int) -> None:
    """srasearch/chameleon-cloud/srasearch-chameleon-10a-001.json, 813a2a7d."""
    reference = draft.add("bowtie2-build", 6.352, 0.0, 8.55 * MB, [draft.given("reference.fna", 99 * KB)])
    aligned = []
    for _ in range(draft.count(max(2, (steps - 2) // 2))):
        reads = draft.add("fasterq-dump", 644.6, 194.7, 1.068, [])
        aligned.append(draft.add("bowtie2", 54.4, 14.9, 0.34 * KB, [reference, reads]))
    draft.add("merge", 0.115, 0.0, 2.4 * KB, aligned)


def _seismology(draft: _Draft, steps: int) -> None:
    """seismology/chameleon-cloud/seismology-chameleon-100p-001.json, 7d0ed0d7."""
    functions = [
        draft.add("sG1IterDecon", 0.79, 0.56, 5.9 * KB, [draft.given(f"pair-{k}", 9.7 * KB)])
        for k in range(draft.count(max(2, steps - 1)))
    ]
    draft.add("siftSTFByMisfit", 0.089, 0.0, 63 * KB, functions)


FAMILIES: dict[str, Callable[[_Draft, int], None]] = {
    "1000genome": _genome,
    "blast": _blast,
    "bwa": _bwa,
    "cycles": _cycles,
    "epigenomics": _epigenomics,
    "montage": _montage,
    "seismology": _seismology,
    "soykb": _soykb,
    "srasearch": _srasearch,
}


def family_workflow(name: str, steps: int, random: np.random.Generator, at: tuple[str, ...]) -> Workflow:
    """A random workflow of a family.

    Args:
        name: one of FAMILIES.
        steps: about how many.
        random: what is drawn from.
        at: the clusters at which all inputs lie.

    Raises:
        WorkflowError: for another name.
    """
    if name not in FAMILIES:
        raise WorkflowError(f"there is no family {name!r}: use {', '.join(FAMILIES)}")
    draft = _Draft(random, at)
    FAMILIES[name](draft, steps)
    return Workflow(name, tuple(draft.files), tuple(draft.steps))


# Random clusters, and workflows brought to the scale of a Spark workflow on them.


def drawn_platform(clusters: int, random: np.random.Generator) -> Platform:
    """Clusters of 1 to 4 executors and speed 0.5 to 2, with 0.05 to 0.2 GB/s and 1 s between any two."""
    names = [f"cluster-{k + 1}" for k in range(clusters)]
    drawn = tuple(
        Cluster(name, int(random.integers(1, 5)), float(random.uniform(0.5, 2.0))) for name in names
    )
    pairs = {
        frozenset((one, other)): Link(float(random.uniform(0.05, 0.2)), 1.0)
        for k, one in enumerate(names)
        for other in names[:k]
    }
    return Platform(drawn, Link(0.1, 1.0), pairs)


def scaled(workflow: Workflow, platform: Platform, mean_run_s: float, ratio: float) -> Workflow:
    """The workflow with a mean run time and a communication-to-computation ratio (CCR; Topcuoglu 2002).

    The proportions among run times and among sizes remain.

    Args:
        workflow: each step of one stage.
        platform: whose mean bandwidth counts.
        mean_run_s: of the steps on one executor of speed 1.
        ratio: mean seconds of moving a file to a step that reads it, by `mean_run_s`; latency left out, and
            files that lie at every cluster.
    """
    work_s = [step.profile.stages[0].task_s for step in workflow.steps]
    longer = mean_run_s / float(np.mean(work_s))
    moves = {file.name: file.gb for file in workflow.files if len(file.at) < len(platform.clusters)}
    moved_gb = [moves[name] for step in workflow.steps for name in step.reads if name in moves]
    s_gb = float(np.mean([1 / link.gb_s for link in (*platform.pairs.values(), platform.link)]))
    larger = ratio * mean_run_s / (float(np.mean(moved_gb)) * s_gb)
    steps = tuple(
        replace(
            step,
            profile=replace(step.profile, stages=(Stage(1, step.profile.stages[0].task_s * longer),)),
        )
        for step in workflow.steps
    )
    files = tuple(replace(file, gb=file.gb * larger) for file in workflow.files)
    return replace(workflow, files=files, steps=steps)


def random_workflow(steps: int, random: np.random.Generator, home: str) -> Workflow:
    """A random graph: each two steps are joined with probability 0.3; run times and sizes vary tenfold.

    Steps of one executor take 10 to 100 s, files have 0.5 to 5 GB; each step without predecessors reads one
    that lies at `home`.
    """
    edges = [(i, j) for j in range(steps) for i in range(j) if random.random() < 0.3]
    files, made = [], []
    for i in range(steps):
        reads = [f"{a}-{b}" for a, b in edges if b == i]
        if not reads:
            files.append(File(f"in-{i}", float(random.uniform(0.5, 5.0)), (home,)))
            reads = [f"in-{i}"]
        writes = tuple(f"{a}-{b}" for a, b in edges if a == i)
        files += [File(name, float(random.uniform(0.5, 5.0))) for name in writes]
        profile = Profile((Stage(1, float(random.uniform(10.0, 100.0))),), executors=1)
        made.append(Step(f"step-{i}", profile, tuple(reads), writes))
    return Workflow("random", tuple(files), tuple(made))
