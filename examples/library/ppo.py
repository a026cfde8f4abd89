"""PPO in one file, as in CleanRL: nothing but Gymnasium, torch and an environment of Spotweave's."""

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import spotweave

COPIES, STEPS, UPDATES, EPOCHS, BATCH = 4, 256, 20, 4, 256
GAMMA, LAMBDA, CLIP, ENTROPY, LEARNING_RATE = 0.99, 0.95, 0.2, 0.01, 3e-4

torch.manual_seed(1)
envs = gymnasium.vector.SyncVectorEnv([lambda: spotweave.make("multicloud", flat=True)] * COPIES)
n_features, n_actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)


def layers(n_outputs):
    """A network of two hidden layers."""
    return nn.Sequential(
        nn.Linear(n_features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_outputs)
    )


actor, critic = layers(n_actions), layers(1)
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], LEARNING_RATE)


def policy(seen):
    """The distribution over the actions that are valid: the last numbers of an observation are the mask."""
    valid = seen[..., -n_actions:] > 0
    over = ~valid.any(-1, keepdim=True)  # the episode has ended: whatever is drawn is ignored
    return Categorical(logits=torch.where(valid | over, actor(seen), -1e8))


seen = torch.as_tensor(envs.reset(seed=1)[0])
done = torch.zeros(COPIES)
for update in range(UPDATES):
    shape = (STEPS, COPIES)
    observations, actions = torch.zeros(*shape, n_features), torch.zeros(shape, dtype=torch.long)
    logs, rewards, ended, values = (torch.zeros(shape) for _ in range(4))
    for step in range(STEPS):
        with torch.no_grad():
            choices = policy(seen)
            actions[step] = choices.sample()
            logs[step], values[step] = choices.log_prob(actions[step]), critic(seen).squeeze(-1)
        observations[step], ended[step] = seen, done
        after, reward, terminated, truncated, _ = envs.step(actions[step].numpy())
        seen, done = torch.as_tensor(after), torch.as_tensor(terminated | truncated, dtype=torch.float32)
        rewards[step] = torch.as_tensor(reward)

    advantages = torch.zeros(shape)
    with torch.no_grad():
        value_after, done_after, advantage = critic(seen).squeeze(-1), done, torch.zeros(COPIES)
    for step in reversed(range(STEPS)):
        error = rewards[step] + GAMMA * value_after * (1 - done_after) - values[step]
        advantages[step] = advantage = error + GAMMA * LAMBDA * (1 - done_after) * advantage
        value_after, done_after = values[step], ended[step]

    # The step after an episode's end only begins the next one: there was nothing to decide.
    rows = torch.nonzero(ended.flatten() == 0).squeeze(-1)
    flat = [x.flatten(0, 1) for x in (observations, actions, logs, advantages, advantages + values)]
    for _ in range(EPOCHS):
        for batch in rows[torch.randperm(len(rows))].split(BATCH):
            x, action, log, gain, target = (part[batch] for part in flat)
            choices = policy(x)
            ratio = (choices.log_prob(action) - log).exp()
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            surrogate = torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
            distance = (critic(x).squeeze(-1) - target).square().mean()
            loss = 0.5 * distance - surrogate - ENTROPY * choices.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"update {update + 1}/{UPDATES}: mean reward {rewards.mean():.4f}")


def best(observation):
    """The most probable action."""
    return int(policy(torch.as_tensor(np.asarray(observation))).probs.argmax())


spotweave.compare(spotweave.make("multicloud", flat=True), {"mine": best}, episodes=10)
