"""The VMs of Teylo 2021, Tables 7.1, 9.1 and 9.7, and how fast they are.

The credits of t3.large are not printed: a credit is one vCPU at full speed for a minute, so that the 20 % of
Table 9.1 on 2 vCPUs are 24 credits per hour.
"""

from __future__ import annotations

from envs.simulation.bags.model import VmType

TABLE_7_1 = (
    VmType("c3.large", 2, 3.75, 0.105, 0.0294),
    VmType("c4.large", 2, 3.75, 0.100, 0.0308),
    VmType("c3.xlarge", 4, 7.5, 0.210, 0.0596),
    VmType("c4.xlarge", 4, 7.5, 0.199, 0.0673),
)
"""Chapter 7: prices of December 2019."""

GFLOPS = {"c3.large": 22.09, "c4.large": 40.73, "c3.xlarge": 44.46, "c4.xlarge": 83.33}
"""LINPACK of all cores together, Table 7.1."""

TABLE_9_1 = (
    VmType("c3.large", 2, 3.75, 0.105, 0.0299),
    VmType("c4.large", 2, 3.75, 0.100, 0.0366),
    VmType("c3.xlarge", 4, 7.5, 0.199, 0.0634),
    VmType("t3.large", 2, 8.0, 0.0832, None, burstable=True, cpu_credit_rate_hour=24.0, baseline=0.2),
)
"""Chapter 9: prices of November 2020."""

TABLE_9_7 = (
    VmType("c3.xlarge", 4, 7.5, 0.210, 0.072),
    VmType("c4.xlarge", 4, 7.5, 0.199, 0.076),
    VmType("c5.xlarge", 4, 8.0, 0.170, 0.073),
    VmType("c3.2xlarge", 8, 15.0, 0.420, 0.161),
    VmType("c4.2xlarge", 8, 15.0, 0.398, 0.209),
    VmType("c5.2xlarge", 8, 16.0, 0.340, 0.161),
    VmType("c3.4xlarge", 16, 30.0, 0.840, 0.350),
    VmType("c4.4xlarge", 16, 30.0, 0.796, 0.246),
    VmType("c5.4xlarge", 16, 32.0, 0.680, 0.281),
    VmType("c3.8xlarge", 32, 60.0, 1.680, 0.529),
    VmType("c4.8xlarge", 36, 60.0, 1.591, 0.609),
    VmType("c5.9xlarge", 36, 72.0, 1.530, 0.684),
    VmType("c5.12xlarge", 48, 96.0, 2.040, 0.790),
    VmType("c5.18xlarge", 72, 144.0, 3.060, 1.196),
    VmType("m3.xlarge", 4, 15.0, 0.266, 0.061),
    VmType("m4.xlarge", 4, 16.0, 0.200, 0.080),
    VmType("m5.xlarge", 4, 16.0, 0.192, 0.076),
    VmType("m3.2xlarge", 8, 30.0, 0.532, 0.129),
    VmType("m4.2xlarge", 8, 32.0, 0.400, 0.206),
    VmType("m5.2xlarge", 8, 32.0, 0.384, 0.182),
    VmType("m4.4xlarge", 16, 64.0, 0.800, 0.343),
    VmType("m5.4xlarge", 16, 64.0, 0.768, 0.335),
    VmType("m5.8xlarge", 32, 128.0, 1.536, 0.637),
    VmType("r3.xlarge", 4, 30.5, 0.333, 0.071),
    VmType("r4.xlarge", 4, 30.5, 0.266, 0.095),
    VmType("r5.xlarge", 4, 32.0, 0.252, 0.098),
    VmType("r3.2xlarge", 8, 61.0, 0.665, 0.144),
    VmType("r4.2xlarge", 8, 61.0, 0.532, 0.184),
    VmType("r5.2xlarge", 8, 64.0, 0.504, 0.221),
    VmType("r3.4xlarge", 16, 122.0, 1.330, 0.309),
    VmType("r4.4xlarge", 16, 122.0, 1.064, 0.330),
    VmType("r5.4xlarge", 16, 128.0, 1.008, 0.344),
)
"""Section 9.5, the case study of sequence alignment: prices of November 2020."""

KNOWN = {vm_type.name: vm_type for vm_type in (*TABLE_9_7, *TABLE_9_1)}
"""The newest prices of a type; where Tables 9.1 and 9.7 differ (c3.xlarge), those of Table 9.1."""

SPEEDS = {
    **{
        name: gflops / KNOWN[name].vcpus / (GFLOPS["c3.large"] / KNOWN["c3.large"].vcpus)
        for name, gflops in GFLOPS.items()
    },
    "t3.large": 167.0 / 119.0,
}
"""Speed of one core against c3.large: Gflops per core of Table 7.1; for t3.large the run times of Figure 4.5
on a core of t3.xlarge."""
