#!/usr/bin/env bash
# Makes what a deployment on Google Cloud needs, in a project of its own: APIs, the scheduler's service account,
# a firewall rule, a bucket (docs/gcp.md). Stops at the first thing that fails.
#
#   PROJECT=your-project bash deploy/providers/gcp/setup.sh
set -euo pipefail
: "${PROJECT:?set PROJECT to the id of a project that only this deployment uses}"
here=$(cd "$(dirname "$0")" && pwd)
account=spotweave-scheduler@$PROJECT.iam.gserviceaccount.com
bucket=gs://spotweave-$PROJECT

gcloud config set project "$PROJECT"
# Without the Resource Manager, missing permissions show only when a call fails.
gcloud services enable compute.googleapis.com storage.googleapis.com cloudresourcemanager.googleapis.com

gcloud iam service-accounts create spotweave-scheduler
gcloud iam roles create spotweave_scheduler --project "$PROJECT" --file "$here/role.yaml"
gcloud iam roles create spotweave_checkpoints --project "$PROJECT" --file "$here/checkpoints_role.yaml"
gcloud projects add-iam-policy-binding "$PROJECT" --role "projects/$PROJECT/roles/spotweave_scheduler" \
  --member "serviceAccount:$account"

# Nodes talk only to each other and to the scheduler, on ports that Spark and Flower choose.
gcloud compute firewall-rules create spotweave-node --source-tags spotweave-node,spotweave-scheduler \
  --target-tags spotweave-node,spotweave-scheduler --allow tcp

# Objects are deleted after 30 days. Soft deletion, which keeps and bills them for seven days more, is off.
gcloud storage buckets create "$bucket" --location us-central1 --uniform-bucket-level-access \
  --public-access-prevention --soft-delete-duration 0
lifecycle=$(mktemp)
trap 'rm -f "$lifecycle"' EXIT
echo '{"rule": [{"action": {"type": "Delete"}, "condition": {"age": 30}}]}' > "$lifecycle"
gcloud storage buckets update "$bucket" --lifecycle-file "$lifecycle"
gcloud storage buckets add-iam-policy-binding "$bucket" \
  --role "projects/$PROJECT/roles/spotweave_checkpoints" --member "serviceAccount:$account"

echo "service account of the scheduler: $account"
echo "bucket: $bucket"
