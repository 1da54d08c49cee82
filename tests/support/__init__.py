"""What tests of several folders share; each module is imported as `from tests.support.MODULE import NAME`.

- nets, layers, data and solvers made from a line or two: `netkit`, `layerkit`, `recurrentkit`, `datakit`, `solverkit`,
  `fork_nets`, `pycaffe_nets`, `layouts`; what they are compared with: `autograd`, `shapes`; what is drawn at random:
  `strategies`
- processes: `jobs` starts and ends them, `mpirun` starts them on several ranks, `engine_command` runs `engine`;
  `programs/` holds what such jobs run
- `paths`: where the checkout's own files are
"""
