"""Where whole objects are kept that outlive this machine: a bucket of S3, or a folder of a file server."""
