#!/bin/sh
# Sockeye 3.1.34 from its package, as it is, in an environment of its own; and pairs of sentences to learn from: ten
# words, and the same ten backwards. It asks for an older torch: so its package comes without what it asks for.
set -e
cd "$(dirname "$0")"
"${PYTHON:-python3.11}" -m venv environment
environment/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 pyyaml==6.0.3 sacrebleu==2.6.0
environment/bin/pip install --quiet --no-deps sockeye==3.1.34
for part in train:6400 dev:64; do
    for way in 1 -1; do
        awk -v count="${part#*:}" -v way="$way" 'BEGIN {
            for (line = 0; line < count; line++) {
                text = ""
                for (place = 0; place < 10; place++) {
                    state = (state * 1103 + 12345) % 65536  # pseudo-random, and the same for both languages
                    text = (way > 0) ? text " w" state % 31 : " w" state % 31 text
                }
                print substr(text, 2)
            }
        }' > "${part%:*}.$way"
    done
done
rm -rf prepared
environment/bin/python -m sockeye.prepare_data --quiet --source train.1 --target train.-1 --output prepared --shared-vocab --max-seq-len 15
echo "Now add to config/programs/sockeye.yaml: environment: examples/sockeye/environment"
