# Every target does its own set-up: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2

.PHONY: demo test test-fast lint format docs clean benchmark didactic
.DEFAULT_GOAL := help

help:
	@echo "make demo       train DQN and CautiousMDQN on CartPole-v1, draw both (a minute)"
	@echo "make test       lint, types and the whole test suite"
	@echo "make test-fast  the quick tests only (under two minutes)"
	@echo "make benchmark  train and publish the benchmark of results/ (days; run it again to go on)"
	@echo "make didactic   the theory's certificate, gridworld and pendulum of results/ (ten minutes)"
	@echo "make docs       build the documentation site in docs/_build (warnings are errors)"
	@echo "make format     format the code"
	@echo "make clean      remove .venv, builds and caches (never runs/)"

# The stamps are renewed when the requirements change. A torch that is in .venv already is kept,
# whatever its build and version; without one pip takes the pinned version, on Linux the CUDA build.
INSTALL := $(BIN)/python -m pip install --quiet -c .venv/constraints.txt -e

.venv/runtime: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	if $(BIN)/python -c "import torch" 2>/dev/null; then grep -v '^torch==' constraints.txt; \
		else cat constraints.txt; fi > .venv/constraints.txt
	$(INSTALL) '.[analysis]'
	touch $@

.venv/dev: .venv/runtime
	$(INSTALL) '.[dev]'
	touch $@

demo: .venv/runtime
	@$(BIN)/python -c "import torch; cuda = torch.version.cuda; \
		print('torch', torch.__version__, f'(build for CUDA {cuda})' if cuda else '(CPU build)')"
	$(BIN)/python scripts/demo.py

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy sb3_cpp

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

test-fast: .venv/dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow"

# The published benchmark, from training to the tables and the figures that the documentation
# shows; compare with `git diff results`. `sb3-cpp report results/NAME` writes a page with the rest.
# MinAtar's seeds are fresh ones: settings were tuned on lower ones. `make benchmark EXTEND=1` keeps
# the published runs and trains only what they lack.
MAIN := cmdqn cpp mdqn mdqn_average dqn dqn_average qrdqn cmdqn_qr
OTHERS := cvi modqn cpi cpp_zeta_1 ppo a2c
ALGOS := cpp cmdqn cvi mdqn modqn dqn qrdqn ppo a2c
GAMES := MinAtar/Asterix-v1 MinAtar/Freeway-v1 MinAtar/Seaquest-v1
TUNING := MinAtar/SpaceInvaders-v1 MinAtar/Breakout-v1
ATARI := SpaceInvadersNoFrameskip-v4 SeaquestNoFrameskip-v4
CONTINUOUS := Pendulum-v1 LunarLanderContinuous-v3 Hopper-v5
SMALL := -params "policy_kwargs:{net_arch: [64, 64]}" eval_episodes:10
known = $(and $(EXTEND),$(wildcard results/$(1)/runs.csv),results/$(1))
train = $(BIN)/python scripts/benchmark.py $(2) --jobs $(JOBS) $(addprefix --published ,$(call known,$(1)))
publish = $(BIN)/python scripts/results.py $(call known,$(2)) $$(ls -d runs/$(1) 2>/dev/null) \
		--envs $(3) --reference $(5) -o results/$(2) --force && \
	$(BIN)/python scripts/plot.py results/$(2) -o results/$(2)/figures --formats png \
		--figures table1 $(4) --force

# Workers share the trials, so a search with another number of them finds other ones
TRIALS := runs/tune/cpp_MinAtar-SpaceInvaders-v1
TUNING_FILES := config.yml trials.csv fresh.csv tables.md best.yml history.png importance.png
search = for worker in $$(seq $(JOBS)); do \
		$(BIN)/python scripts/tune.py --algo cpp --env MinAtar/SpaceInvaders-v1 --trials 30 -n 25000 \
			--top 3 --top-seeds 5 & sleep 5; \
	done; wait; cp $(addprefix $(TRIALS)/,$(TUNING_FILES)) results/tuning

benchmark: .venv/dev
	$(if $(EXTEND),,$(call train,caution_study,caution_study --seeds 5))
	$(call train,continuous,continuous --algos csac sac --envs Pendulum-v1 --seeds 5 -n 10000 $(SMALL))
	$(call train,continuous,continuous --algos csac sac --envs LunarLanderContinuous-v3 --seeds 5 -n 40000 $(SMALL))
	$(call train,continuous,continuous --algos csac sac --envs Hopper-v5 --seeds 3 -n 100000 $(SMALL))
	$(call train,cartpole,classic --algos $(ALGOS) --envs CartPole-v1 --seeds 5)
	$(call train,acrobot,classic --algos $(ALGOS) --envs Acrobot-v1 --seeds 3 --first-seed 100 -n 30000)
	$(call train,minatar,minatar --algos $(MAIN) --envs $(GAMES) --seeds 10 --first-seed 200)
	$(call train,minatar,minatar --algos $(OTHERS) --envs $(GAMES) --seeds 5 --first-seed 200)
	$(call train,minatar_tuning,minatar --algos $(MAIN) --envs $(TUNING) --seeds 10 --first-seed 200)
	$(call train,minatar_tuning,minatar --algos $(OTHERS) --envs $(TUNING) --seeds 5 --first-seed 200)
	$(call train,ablation,ablation --envs MinAtar/Seaquest-v1 MinAtar/Breakout-v1 --seeds 5)
	$(call train,atari_tenth,atari_tenth --seeds 2)
	$(if $(EXTEND),,$(search))
	$(call publish,caution_study,caution_study,$(TUNING),falls,cmdqn)
	$(call publish,continuous,continuous,$(CONTINUOUS),fig4,csac)
	$(call publish,classic,cartpole,CartPole-v1,pareto,cmdqn)
	$(call publish,classic,acrobot,Acrobot-v1,,cmdqn)
	$(call publish,minatar,minatar,$(GAMES),pareto fig4 falls traces,cmdqn)
	$(call publish,minatar,minatar_tuning,$(TUNING),fig4,cmdqn)
	$(call publish,ablation,ablation,MinAtar/Seaquest-v1 MinAtar/Breakout-v1,fig5,cpp)
	$(call publish,atari_tenth,atari_tenth,$(ATARI),fig4 traces,cmdqn)

# The paper's exact and linear studies: of each run folder, the files that are published.
RULES_1B := cpp cvi espi espi_printed aspi cpi linear_cpp cpp_geometric span_cpp
study = $(BIN)/python scripts/$(1) --out runs/didactic/$(2) --force && mkdir -p results/$(2) && \
	cp $(addprefix runs/didactic/$(2)/,config.yml tables.md $(3)) results/$(2)

didactic: .venv/runtime
	$(call study,theory.py --updates 1000000,certificate,certificate.csv progress.csv certificate.png)
	$(call study,gridworld.py --trials 100,gridworld,summary.csv claims.csv expected.png)
	$(call study,pendulum.py,pendulum/gamma_0.9,summary.csv trials.csv comparison.png caution.png)
	$(call study,pendulum.py --gamma 0.85,pendulum/gamma_0.85,summary.csv trials.csv)
	$(call study,pendulum.py --scheme 1b --algos $(RULES_1B),pendulum/scheme_1b,summary.csv trials.csv)

docs: .venv/dev
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "open docs/_build/index.html"

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
