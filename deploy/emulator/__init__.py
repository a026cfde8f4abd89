"""AWS on this machine: moto, with markets that move, capacity that ends, interruptions on a clock."""
