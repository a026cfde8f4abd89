#!/usr/bin/env bash
# Makes what a deployment on AWS needs, in the default network of AWS_DEFAULT_REGION: a role for the scheduler's
# machine (without rights), security groups, a queue of interruption notices, a bucket (docs/aws.md).
#
#   bash deploy/providers/aws/setup.sh           # everything; stops at the first thing that fails
#   bash deploy/providers/aws/setup.sh events    # in each further region: the queue alone
set -euo pipefail
export AWS_DEFAULT_REGION="${AWS_DEFAULT_REGION:-us-east-1}"

role() {
  aws iam create-role --role-name spotweave-scheduler --assume-role-policy-document '{"Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]}' > /dev/null
  aws iam create-instance-profile --instance-profile-name spotweave-scheduler > /dev/null
  aws iam add-role-to-instance-profile --instance-profile-name spotweave-scheduler --role-name spotweave-scheduler
  # There is one for an account: it may exist.
  aws iam create-service-linked-role --aws-service-name spot.amazonaws.com > /dev/null || true
}

# Nodes talk only to each other and to the scheduler, on ports that Spark and Flower choose.
network() {
  local node home pair mine
  node=$(aws ec2 create-security-group --group-name spotweave-node --description nodes --query GroupId --output text)
  home=$(aws ec2 create-security-group --group-name spotweave-scheduler --description scheduler --query GroupId --output text)
  for pair in "$node $node" "$node $home" "$home $node"; do
    aws ec2 authorize-security-group-ingress --group-id "${pair% *}" --protocol tcp --port 0-65535 \
      --source-group "${pair#* }" > /dev/null
  done
  mine=$(curl -sf https://checkip.amazonaws.com)
  aws ec2 authorize-security-group-ingress --group-id "$home" --protocol tcp --port 22 --cidr "$mine/32" > /dev/null
  echo "group of the scheduler: $home (SSH from $mine)"
  echo "group of the nodes:     $node"
  echo "subnets:"
  aws ec2 describe-subnets --filters Name=default-for-az,Values=true --query 'Subnets[].[AvailabilityZone,SubnetId]' --output text
}

# EventBridge sends interruption warnings and advice to leave to a queue that only this deployment reads.
events() {
  local url queue rule policy
  url=$(aws sqs create-queue --queue-name spotweave-events --attributes MessageRetentionPeriod=600 --query QueueUrl --output text)
  queue=$(aws sqs get-queue-attributes --queue-url "$url" --attribute-names QueueArn --query Attributes.QueueArn --output text)
  rule=$(aws events put-rule --name spotweave-events --query RuleArn --output text --event-pattern '{"source": ["aws.ec2"],
    "detail-type": ["EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"]}')
  aws events put-targets --rule spotweave-events --targets "Id=queue,Arn=$queue" > /dev/null
  policy=$(python3 -c 'import json, sys; print(json.dumps({"Policy": json.dumps({"Version": "2012-10-17", "Statement": [{
    "Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": sys.argv[1],
    "Condition": {"ArnEquals": {"aws:SourceArn": sys.argv[2]}}}]})}))' "$queue" "$rule")
  aws sqs set-queue-attributes --queue-url "$url" --attributes "$policy"
  echo "queue of $AWS_DEFAULT_REGION: $url"
}

# Encrypted, private; objects are deleted after 30 days.
bucket() {
  local bucket place=()
  bucket=spotweave-$(aws sts get-caller-identity --query Account --output text)
  [ "$AWS_DEFAULT_REGION" = us-east-1 ] || place=(--create-bucket-configuration "LocationConstraint=$AWS_DEFAULT_REGION")
  aws s3api create-bucket --bucket "$bucket" "${place[@]}" > /dev/null
  aws s3api put-bucket-encryption --bucket "$bucket" --server-side-encryption-configuration \
    '{"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}'
  aws s3api put-public-access-block --bucket "$bucket" --public-access-block-configuration \
    BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true
  aws s3api put-bucket-lifecycle-configuration --bucket "$bucket" --lifecycle-configuration \
    '{"Rules": [{"ID": "old", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 30}}]}' > /dev/null
  echo "bucket: s3://$bucket"
}

case "${1:-}" in
  "") role; network; events; bucket ;;
  events) events ;;
  *) echo "$0: $1: expected nothing, or events" >&2; exit 2 ;;
esac
