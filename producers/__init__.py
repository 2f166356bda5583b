"""What clients of Lacuna use: workloads and, against a running system, the client library."""
