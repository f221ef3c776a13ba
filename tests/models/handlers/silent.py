import runpod

print("version", runpod.__version__)
