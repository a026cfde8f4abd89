"""Amazon EC2 through boto3: spot and on-demand instances of several regions, as one provider."""
