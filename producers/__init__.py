"""The client library, and the workloads that stand for many clients."""
