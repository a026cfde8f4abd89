#!/usr/bin/env bash
# Turns Ubuntu 22.04 of AWS or Google Cloud into the image of nodes and scheduler: NVIDIA's driver, Java, Spark, Flower,
# the node agent, and CUDA's runtime, which comes with torch. Give it as user data (docs/aws.md, docs/gcp.md): it stops the
# machine when all is there, and else says in /var/log/cloud-init-output.log what failed. Or run it as root.
set -euo pipefail
SOURCE=${SOURCE:-}             # this project, as git clones it: set it here if you give this as user data
DRIVER=${DRIVER:-580-server}   # branch of NVIDIA's driver in Ubuntu's archive; none: a machine without GPUs
LIBRARIES=${LIBRARIES:-}       # what jobs import besides, as pip takes it
[ -n "$SOURCE" ] || { echo "image.sh: SOURCE is empty: set it to what git clones, this repository" >&2; exit 2; }
export DEBIAN_FRONTEND=noninteractive
apt=(apt-get -qq -o DPkg::Lock::Timeout=300)

"${apt[@]}" update
"${apt[@]}" install --no-install-recommends bubblewrap ca-certificates git openjdk-17-jre-headless python3.11 python3.11-venv
if [ "$DRIVER" != none ]; then
  kernel=$(uname -r)
  kernel=${KERNEL:-${kernel##*-}}  # aws or gcp; modules are built and signed for their kernels
  "${apt[@]}" install --no-install-recommends "linux-$kernel" "linux-modules-nvidia-$DRIVER-$kernel" \
    "libnvidia-compute-$DRIVER" "nvidia-utils-$DRIVER"
  # CUDA needs this device, which sandboxed jobs cannot make. cloud-init runs this at each start.
  install -d /var/lib/cloud/scripts/per-boot
  install -m 0755 /dev/stdin /var/lib/cloud/scripts/per-boot/nvidia-uvm <<'EOF'
#!/bin/sh
modprobe nvidia-uvm || exit 0  # no GPU here
major=$(awk '$2 == "nvidia-uvm" {print $1}' /proc/devices)
[ -e /dev/nvidia-uvm ] || mknod -m 0666 /dev/nvidia-uvm c "$major" 0
EOF
fi

read -ra libraries <<< "$LIBRARIES"
git clone --quiet "$SOURCE" /opt/spotweave-source
python3.11 -m venv /opt/spotweave
/opt/spotweave/bin/pip install --quiet --no-cache-dir \
  "/opt/spotweave-source[aws,deploy,flower,gcp,gpu,spark]" "${libraries[@]}"

# An image that lacks something ends here, not at the first job.
cd /
java -version
bwrap --version
/opt/spotweave/bin/python -c 'import boto3, flwr, google.cloud.compute, pynvml, pyspark, torch, spotweave.deploy.node.agent'
[ "$DRIVER" = none ] || find /lib/modules -name 'nvidia-uvm.ko*' | grep .
/opt/spotweave/bin/python -c 'from importlib.metadata import version; print("image ready: spotweave", version("spotweave"))'
case $0 in /var/lib/cloud/*) shutdown -h now ;; esac
