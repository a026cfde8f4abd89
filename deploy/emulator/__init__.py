"""AWS on this machine: a moto server with markets that move, capacity that ends, and interruptions on a clock."""
