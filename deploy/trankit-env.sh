#!/usr/bin/env bash
# Make Trankit's own environment: trankit 1.1.2 cannot share one with transformers 5.
#   deploy/trankit-env.sh DIR          then: export EVALUATOR_TRANKIT_PYTHON=DIR/bin/python
# PYTHON picks the interpreter (3.11 or newer), TORCH another build of torch, for example for a GPU:
#   TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cu130" deploy/trankit-env.sh DIR
# The set of versions below works together with trankit 1.1.2 unpatched, although that declares torch<=2.0.1.
set -euo pipefail
dir=${1:?usage: deploy/trankit-env.sh DIR}
"${PYTHON:-python3}" -m venv "$dir"
# shellcheck disable=SC2086  # TORCH may hold options
"${PYTHON:-python3}" "$(dirname "$0")/install_torch.py" "$dir/bin/python" ${TORCH:-}
"$dir/bin/pip" install --quiet \
  transformers==4.48.3 adapters==1.1.1 tokenizers==0.21.4 huggingface_hub==0.36.2 sentencepiece==0.2.3 numpy==2.4.6 \
  langid sacremoses protobuf requests tqdm filelock regex six
"$dir/bin/pip" install --quiet --no-deps trankit==1.1.2
HF_HUB_OFFLINE=1 "$dir/bin/python" -c 'import trankit' > /dev/null
echo "export EVALUATOR_TRANKIT_PYTHON=$dir/bin/python"
