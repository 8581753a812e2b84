"""Chakra execution traces of MLCommons: compute times and all-reduces of a training, without values.

Schema: github.com/mlcommons/chakra, schema/protobuf/et_def.proto; Sridharan et al., Chakra: Advancing
Performance Benchmarking and Co-design using Standardized Execution Traces, 2023 (arXiv 2305.14516).

`wire` reads protobuf's encoding, `read` the nodes of a file of either form, `schedule` puts them in time, and
`spec` makes a workload of them.
"""
