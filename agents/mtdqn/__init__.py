"""The LSTM multi-target DQN: one network over all (task, place) pairs, guided exploration, mutual targets."""
