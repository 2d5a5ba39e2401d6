// SPDX-License-Identifier: Apache-2.0
#pragma once
// What noisy measurements at some points of a line say about every point of it: regression by a Gaussian process with a
// squared-exponential kernel. Pure and deterministic.

#include <vector>

namespace hvd::tune {

class GaussianProcess {
 public:
  // `noise`: standard deviation of one measurement, in units of the spread of all `values`. `reach`: how far apart
  // points may be and still tell about each other.
  GaussianProcess(std::vector<double> points, std::vector<double> values, double noise, double reach);

  struct Guess {
    double mean;
    double deviation;
  };
  Guess At(double point) const;
  // By how much the value at a point is expected to exceed the best mean of the measured points.
  double ExpectedImprovement(double point) const;

 private:
  double Kernel(double a, double b) const;
  // Values as multiples of the spread, around the mean.
  Guess Standardised(double point) const;
  // Solves L x = b, for the lower triangle L that factors the covariances.
  std::vector<double> Forward(std::vector<double> b) const;
  std::vector<double> Backward(std::vector<double> b) const;

  std::vector<double> points_;
  double reach_;
  double center_ = 0;
  double spread_ = 1;
  double best_ = 0;                          // the highest mean at a measured point, standardised
  std::vector<std::vector<double>> factor_;  // Cholesky's
  std::vector<double> weights_;
};

}  // namespace hvd::tune
