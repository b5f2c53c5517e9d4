"""One torch thread for every test: the networks are small and the runs are many."""

import torch as th

th.set_num_threads(1)
