"""Where whole objects are kept that outlive this machine: a cloud's bucket, or a folder of a file server."""
