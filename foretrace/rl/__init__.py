"""Reinforcement learning from one stream: agents with memory, learned online by eligibility traces."""

from foretrace.rl._actor_critic import ActorCritic as ActorCritic
from foretrace.rl._agent import AbstractAgent as AbstractAgent
from foretrace.rl._config import AgentConfig as AgentConfig
from foretrace.rl._config import RLConfig as RLConfig
from foretrace.rl._environment import Environment as Environment
from foretrace.rl._environment import TimeStep as TimeStep
from foretrace.rl._environment import check_environment as check_environment
from foretrace.rl._environment import step_or_reset as step_or_reset
from foretrace.rl._gymnasium import Interaction as Interaction
from foretrace.rl._gymnasium import interact as interact
from foretrace.rl._gymnax import Gymnax as Gymnax
from foretrace.rl._memory_chain import MemoryChain as MemoryChain
from foretrace.rl._overshoot import ObGD as ObGD
from foretrace.rl._q_learning import QLearning as QLearning
from foretrace.rl._run import RLResult as RLResult
from foretrace.rl._run import train as train
from foretrace.rl._state import AgentInfo as AgentInfo
from foretrace.rl._state import AgentState as AgentState
from foretrace.rl._t_maze import TMaze as TMaze
from foretrace.rl._trace_conditioning import TraceConditioning as TraceConditioning
from foretrace.rl._value_prediction import ValuePrediction as ValuePrediction
