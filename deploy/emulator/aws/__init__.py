"""What an emulated AWS adds to what all emulated clouds have: EC2, spot requests, SQS, S3 (moto's)."""
