"""Object stores that outlive this machine: a cloud's bucket, or a folder of a file server."""
